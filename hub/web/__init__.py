"""Parts shared by the browser page and the hub server: sockets, request bodies, pages and their security policy."""
