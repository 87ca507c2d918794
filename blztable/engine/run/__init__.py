"""Threads, and what each of them needs: tasks, scratch memory, progress, limits."""
