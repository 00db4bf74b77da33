"""Does a build call the right tool with the right arguments, use what comes back, and stop there?"""
