# SPDX-License-Identifier: Apache-2.0
"""Python beside the program; every package says what it is for. Nothing here is needed to build or to run weir."""
