__all__ = ["FACTS"]

FACTS: dict[str, str | bool]
