package store

import (
	"bytes"
	"hash/crc32"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/object"
)

func TestValue(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	k := &kind{res: resources()[0], prefix: kindPrefix(corev1.PodKind), table: table}
	p := benchPod("pod-1")
	blank, err := encode(k.prefix+"default/pod-1", p, table)
	if err != nil {
		t.Fatal(err)
	}
	p.Metadata.ResourceVersion = "123456"
	before := object.Clone(p)
	value, err := encode(k.prefix+"default/pod-1", p, table)
	if err != nil || len(value) != len(blank) {
		t.Errorf("the revision changes what is stored (%v)", err)
	}
	if !proto.Equal(p, before) {
		t.Error("encoding changes the object")
	}
	setWriter(value, 42)
	item, err := k.decode("default/pod-1", value, 123456)
	if err != nil || !proto.Equal(item.Object, p) || writerOf(value) != 42 {
		t.Errorf("decoded %v, %v", item, err)
	}
	for i := range value {
		if i >= 5 && i < headerBytes {
			continue // the writer says nothing about the object
		}
		bad := bytes.Clone(value)
		bad[i] ^= 0x10
		if _, err := k.decode("default/pod-1", bad, 1); err == nil {
			t.Errorf("byte %d can be changed", i)
		}
	}
	if _, err := k.decode("default/pod-2", value, 1); err == nil {
		t.Error("a value under another key")
	}
	for _, short := range [][]byte{nil, {formatPlain}, value[:headerBytes-1],
		{formatSealed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if _, err := k.decode("default/pod-1", short, 1); err == nil {
			t.Errorf("decoded %x", short)
		}
	}
}
