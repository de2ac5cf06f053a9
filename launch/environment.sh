# Where things lie, for the scripts of this folder and of tests/. Sourced from the top of the clone; sets variables and PATH only.
export DRAFTSMITH_CUDA=${DRAFTSMITH_CUDA:-ON}
export DRAFTSMITH_CACHE=${DRAFTSMITH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/draftsmith}
export DRAFTSMITH_BUILD=${DRAFTSMITH_BUILD:-build}
mkdir -p "$DRAFTSMITH_CACHE"
# The environment is keyed by its pins: another pin, another Python, another torch make another environment.
_key=$({ cat launch/requirements.txt; [ "$DRAFTSMITH_CUDA" = OFF ] || cat launch/requirements-cuda.txt; python3 --version; echo "${DRAFTSMITH_TORCH:-}"; } | sha256sum | cut -c1-12)
export DRAFTSMITH_VENV=$DRAFTSMITH_CACHE/venv-$_key
unset _key
export CCACHE_DIR=${CCACHE_DIR:-$DRAFTSMITH_CACHE/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
export PATH=$DRAFTSMITH_VENV/bin:$HOME/.cargo/bin:$PATH
