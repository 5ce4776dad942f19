# SPDX-License-Identifier: Apache-2.0
"""Generates the files of tests/golden reproducibly, and records the program's behaviour."""
