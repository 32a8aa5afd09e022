"""Answers written down: text, Markdown, JSON, CSV."""
