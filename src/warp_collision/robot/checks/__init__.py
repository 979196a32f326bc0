"""Checks of robots: cost and clearance of self-collision, configurations, joint paths."""
