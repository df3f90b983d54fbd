"""What both kinds of records share: the folder, counts of what was left out, reports."""
