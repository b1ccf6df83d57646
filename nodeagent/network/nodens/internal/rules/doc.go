// Package rules is the words in which this tree writes its rules of nftables: a table that replaces the one before in
// one transaction, and matches of packets.
package rules
