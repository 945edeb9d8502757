"""What a person types. Nothing heavy is imported before a verb runs."""
