package main

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// generateDocs writes what the .proto files of a package say about its messages and fields, for those who ask the
// server (kubectl explain). It is one constant, not a map, which would be filled at every start and stay in memory.
func generateDocs(p *protogen.Plugin, pkg *goPackage) {
	var lines []string
	add := func(d protoreflect.Descriptor, comments protogen.CommentSet) {
		text := strings.Join(strings.Fields(string(comments.Leading)), " ")
		if text != "" {
			name := strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
			lines = append(lines, name+"\t"+citation.ReplaceAllString(text, ""))
		}
	}
	for _, file := range pkg.files {
		for _, m := range allMessages(file.Messages) {
			add(m.Desc, m.Comments)
			for _, f := range m.Fields {
				add(f.Desc, f.Comments)
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	pkg.documented = true
	slices.Sort(lines)
	g := p.NewGeneratedFile(path.Join(path.Dir(pkg.first.GeneratedFilenamePrefix), "docs_monoplane.pb.go"),
		pkg.first.GoImportPath)
	header(g, pkg.first)
	g.P("// Docs describes the messages of this package and their fields, in the words of the .proto files: a line " +
		"for each,")
	g.P("// in order, of its name, a tab and the text. It costs nothing until it is read.")
	g.P(`const Docs = "" +`)
	for i, line := range lines {
		plus := " +"
		if i == len(lines)-1 {
			plus = ""
		}
		g.P(strconv.Quote(line+"\n"), plus)
	}
}

// citation is the identifier of a rule in brackets, which readers of the .proto files can look up.
var citation = regexp.MustCompile(` \([A-Z]+-\d+\)`)
