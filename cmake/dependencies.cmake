# SPDX-License-Identifier: Apache-2.0
# What the configuration found, for tools/sbom.py: generated/dependencies.json in the build folder. Included once everything
# was looked for. Names are those of Debian's source packages where they have one.
set(found "")

# weir_dependency(NAME VERSION HOW LICENCE): HOW is linked, headers (compiled into the program) or tests.
function(weir_dependency name version how licence)
  if(NOT version)
    message(WARNING "${name} was found, but not its version")
  endif()
  string(APPEND found "  {\"name\": \"${name}\", \"version\": \"${version}\", \"how\": \"${how}\", \"licence\": \"${licence}\"},\n")
  set(found "${found}" PARENT_SCOPE)
endfunction()

weir_dependency(fmt "${fmt_VERSION}" linked MIT)
weir_dependency(highway "${hwy_VERSION}" linked Apache-2.0)
weir_dependency(pcre2 "${PCRE2_VERSION}" linked BSD-3-Clause)
weir_dependency(cpp-httplib "${HTTPLIB_VERSION}" linked MIT)
weir_dependency(libpng "${LIBPNG_VERSION}" linked libpng-2.0)
weir_dependency(libedit "${EDIT_VERSION}" linked BSD-3-Clause)
if(CRYPTO_FOUND)
  weir_dependency(openssl "${CRYPTO_VERSION}" linked Apache-2.0)
endif()
if(MOSQUITTO_FOUND)
  weir_dependency(mosquitto "${MOSQUITTO_VERSION}" linked EPL-2.0)
endif()
weir_dependency(nlohmann-json "${nlohmann_json_VERSION}" headers MIT)
weir_dependency(cli11 "${CLI11_VERSION}" headers BSD-3-Clause)
if(WEIR_HAS_BEAST)
  find_path(WEIR_BOOST_HEADERS boost/version.hpp)
  file(STRINGS ${WEIR_BOOST_HEADERS}/boost/version.hpp boost REGEX "define BOOST_LIB_VERSION")
  string(REGEX REPLACE ".*\"([0-9_]+)\".*" "\\1" boost "${boost}")
  string(REPLACE "_" "." boost "${boost}")
  weir_dependency(boost "${boost}" headers BSL-1.0)
endif()
if(WEIR_TESTS)
  weir_dependency(googletest "${GTest_VERSION}" tests BSD-3-Clause)
endif()
string(REGEX REPLACE ",\n$" "\n" found "${found}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/dependencies.json CONTENT
"{\"weir\": \"${PROJECT_VERSION}\", \"compiler\": \"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\", \"found\": [
${found}]}
")
