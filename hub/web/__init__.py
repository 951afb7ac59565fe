"""Parts that the browser page and the hub server share: sockets, request bodies, pages and their policy."""
