"""Long runs and many clients at once: what the program does under load."""
