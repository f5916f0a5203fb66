"""What composes pages, a module for a kind or a few that belong together: `KINDS` names them."""
