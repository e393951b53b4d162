"""What a run leaves on disk: its folder, its metrics, what it was made with and from."""
