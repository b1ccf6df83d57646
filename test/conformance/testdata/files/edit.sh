#!/bin/sh
# An editor: it replaces the words that $CHANGE says with sed.
sed -i "$CHANGE" "$1"
