"""audition: try a change to a large-language-model server on production's own GPUs, and always bring production back."""

__version__ = "0.1.0"
