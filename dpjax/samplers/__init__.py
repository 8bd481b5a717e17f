"""Samplers: one chain's transitions, written for lanes."""
