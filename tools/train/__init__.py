# SPDX-License-Identifier: Apache-2.0
"""Trains the small vision-language models of models/ on a generated world."""
