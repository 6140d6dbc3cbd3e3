"""The servers that the endpoint is measured against."""
