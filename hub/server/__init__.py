"""Hub server for a lab: repositories on disk behind the API of `huggingface_hub`."""
