"""The page at `/`."""


class Page:
    def __init__(self, tinker):
        pass

    def routes(self):
        return []
