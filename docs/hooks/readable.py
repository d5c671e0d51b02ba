"""What axe-core asks of the theme's pages beyond styles: a name for the search."""


def on_post_page(output: str, page: object, config: object) -> str:
    """The page with it."""
    return output.replace('component="search" role="dialog"', 'component="search" role="dialog" aria-label="Search"')
