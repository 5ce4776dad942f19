# SPDX-License-Identifier: Apache-2.0
"""Makes the files of tests/golden, byte for byte the same every time, and records what the program does."""
