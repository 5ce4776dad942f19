"""One eviction policy a file, from its paper; this folder is the list."""
