# Prints the size of its terminal, once that is known: kubectl tells it after the start.
while [ "$(stty size)" = "0 0" ]; do sleep 0.05; done
stty size
