"""Is a kernel right?"""
