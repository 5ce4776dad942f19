# SPDX-License-Identifier: Apache-2.0
"""Long runs and many clients at once: what the program does under load."""
