// Carrier of the shared precompiled header (see launch/pch.h and CMakeLists.txt).
