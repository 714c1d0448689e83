"""Reviews as a graph of users and items: reading, statistics, splitting."""
