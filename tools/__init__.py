# SPDX-License-Identifier: Apache-2.0
"""Python tools; each package states its purpose. None of them is needed to build or run weir."""
