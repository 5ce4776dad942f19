"""Trains the small vision-language models of models/, in a generated world."""
