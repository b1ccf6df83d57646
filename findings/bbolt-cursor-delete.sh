#!/usr/bin/env bash
# Software: bbolt 1.5.0 (go.etcd.io/bbolt)
# Guess: a loop over a cursor that calls the cursor's own Delete visits each key, since Next goes on after the one
#   that was deleted.
# Behaviour: Delete removes the key and leaves the cursor where its follower now stands, so Next skips that one: such
#   a loop empties half of a bucket. Seek with the key just deleted finds it.
# Seen:
#   Delete, then Next: visited a c e, left b d f
#   Delete, then Seek of the key deleted: visited a b c d e f, left nothing
set -euo pipefail
sed -n '/^# /s/^# //p' "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^# Seen:/,/^set/s/^#   //p' "$0" >"$dir/expected"
cd "$dir"
export GOWORK=off

cat >go.mod <<'EOF'
module finding

go 1.26

require (
	go.etcd.io/bbolt v1.5.0
	golang.org/x/sys v0.49.0 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"strings"

	"go.etcd.io/bbolt"
)

func main() {
	db, err := bbolt.Open("db", 0o600, nil)
	if err != nil {
		panic(err)
	}
	empty(db, "Delete, then Next", func(c *bbolt.Cursor, _ []byte) []byte {
		key, _ := c.Next()
		return key
	})
	empty(db, "Delete, then Seek of the key deleted", func(c *bbolt.Cursor, deleted []byte) []byte {
		key, _ := c.Seek(deleted)
		return key
	})
}

// empty deletes the keys of a bucket that a cursor visits in the manner of next.
func empty(db *bbolt.DB, how string, next func(c *bbolt.Cursor, deleted []byte) []byte) {
	err := db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte(how))
		if err != nil {
			return err
		}
		for _, key := range "abcdef" {
			if err := bucket.Put([]byte(string(key)), []byte("value")); err != nil {
				return err
			}
		}
		var visited, left []string
		cursor := bucket.Cursor()
		for key, _ := cursor.First(); key != nil; {
			name := string(key)
			visited = append(visited, name)
			if err := cursor.Delete(); err != nil {
				return err
			}
			key = next(cursor, []byte(name))
		}
		if err := bucket.ForEach(func(key, _ []byte) error { left = append(left, string(key)); return nil }); err != nil {
			return err
		}
		if left == nil {
			left = []string{"nothing"}
		}
		fmt.Printf("%s: visited %s, left %s\n", how, strings.Join(visited, " "), strings.Join(left, " "))
		return nil
	})
	if err != nil {
		panic(err)
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
