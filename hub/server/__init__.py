"""Hub server for a lab: repositories on disk behind the API that `huggingface_hub` speaks."""
