"""Tables and charts from the JSON lines of `weir eval` and `weir bench`."""
