# What kubectl explain prints, with one word for each description: those of Monoplane's kinds are its own. What is below
# fields whose names match `but` is left out.
/^[A-Z]+:/ { section = $1; told = deep = 0; print; next }
section == "FIELDS:" && /^ *([A-Za-z$]+\t<|enum: )/ {
	told = 0
	depth = match($0, /[^ ]/)
	if (deep && depth > deep) next
	deep = but != "" && $1 ~ but ? depth : 0
	print
	next
}
section == "DESCRIPTION:" || section == "FIELDS:" {
	if (NF > 0 && !told) print "    TEXT"
	if (NF > 0) told = 1
	next
}
{ print }
