# Target draftsmith_text: the static library of the Rust crate data/text (HF tokenizers and minijinja behind a C ABI).
find_program(DRAFTSMITH_CARGO cargo HINTS $ENV{HOME}/.cargo/bin)
if(NOT DRAFTSMITH_CARGO)
  message(FATAL_ERROR "cargo is missing: install Rust (Debian: apt-get install cargo rustc, or rustup), then run launch/setup again.")
endif()
set(DRAFTSMITH_CARGO_TARGET ${CMAKE_BINARY_DIR}/cargo CACHE PATH "cargo's target folder")
set(_archive ${DRAFTSMITH_CARGO_TARGET}/release/libdraftsmith_text.a)
file(GLOB_RECURSE _rust CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/text/src/*.rs)
add_custom_command(
  OUTPUT ${_archive}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${DRAFTSMITH_CARGO_TARGET} ${DRAFTSMITH_CARGO} build --release --locked --quiet
          --manifest-path ${CMAKE_SOURCE_DIR}/data/text/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E touch ${_archive}
  DEPENDS ${_rust} ${CMAKE_SOURCE_DIR}/data/text/Cargo.toml ${CMAKE_SOURCE_DIR}/data/text/Cargo.lock
  COMMENT "Building the text crate (tokenizers, minijinja)" VERBATIM USES_TERMINAL)
add_custom_target(draftsmith_text_crate DEPENDS ${_archive})
# Only programs wait for the archive (add_dependencies of each), so that the C++ sources compile beside cargo.
add_library(draftsmith_text INTERFACE)
target_link_libraries(draftsmith_text INTERFACE ${_archive} Threads::Threads ${CMAKE_DL_LIBS} m)
