"""What a run is: configuration and recipes, data and its split, the folder and what is written into it."""
