"""Threads and what they need: tasks, budgets, scratch memory, progress, limits."""
