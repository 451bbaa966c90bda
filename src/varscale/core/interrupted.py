"""Work that stopped before its end and can be continued."""


class Interrupted(Exception):  # noqa: N818 - no error: what was done is saved
    """Work stopped before its end, with the exit status for it; it can be continued."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
