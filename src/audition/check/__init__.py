"""What can be known of a spike before anything is touched: looked at once, turned into facts, judged by pure rules."""
