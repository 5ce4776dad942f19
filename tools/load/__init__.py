# SPDX-License-Identifier: Apache-2.0
"""Load tests: long runs and many concurrent clients."""
