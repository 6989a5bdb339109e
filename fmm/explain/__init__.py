"""Explaining rows: where they come from, the work in resumable parts, and scores of whole words."""
