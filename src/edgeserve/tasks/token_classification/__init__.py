"""Token classification: labelled spans of characters."""
