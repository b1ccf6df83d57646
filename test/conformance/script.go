package conformance

import (
	"fmt"
	"os"
	"strings"
)

// block is a part of a script: lines for readers, or a command with its output.
type block struct {
	text    []string // what is neither a command nor its output, as it stands in the file
	command string   // empty for text
	output  string   // lines without their indentation, each with its end
}

const indent = "    "

// parse reads a script; what render writes of it is the same file.
func parse(path string) ([]block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var blocks []block
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		last := len(blocks) - 1
		inCommand := last >= 0 && blocks[last].command != ""
		switch {
		case strings.HasPrefix(line, "$ "):
			blocks = append(blocks, block{command: line[2:]})
		case strings.HasPrefix(line, "> ") || line == ">":
			if !inCommand || blocks[last].output != "" {
				return nil, fmt.Errorf("%s:%d: continues no command", path, i+1)
			}
			blocks[last].command += "\n" + strings.TrimPrefix(line[1:], " ")
		case strings.HasPrefix(line, indent):
			if !inCommand {
				return nil, fmt.Errorf("%s:%d: output of no command", path, i+1)
			}
			blocks[last].output += line[len(indent):] + "\n"
		case last >= 0 && !inCommand:
			blocks[last].text = append(blocks[last].text, line)
		default:
			blocks = append(blocks, block{text: []string{line}})
		}
	}
	return blocks, nil
}

// render is the file that parse reads.
func render(blocks []block) string {
	var out strings.Builder
	for _, b := range blocks {
		if b.command == "" {
			out.WriteString(strings.Join(b.text, "\n") + "\n")
			continue
		}
		out.WriteString("$ " + strings.ReplaceAll(strings.ReplaceAll(b.command, "\n", "\n> "), "> \n", ">\n") + "\n")
		for line := range strings.Lines(b.output) {
			out.WriteString(indent + line)
		}
	}
	return out.String()
}

// difference is a command of which Monoplane prints something else than Kubernetes on purpose.
type difference struct {
	script, command string
	reason          string
	output          string // Monoplane's
}

// differences reads the file that lists them. It is a script where a line "@ NAME" says of which script the commands
// below are, and the text above a command says why.
func differences(path string) ([]difference, error) {
	blocks, err := parse(path)
	if err != nil {
		return nil, err
	}
	var all []difference
	script, reason := "", ""
	for _, b := range blocks {
		if b.command != "" {
			if script == "" || reason == "" {
				return nil, fmt.Errorf("%s: %s: want the script and a reason above it", path, b.command)
			}
			all = append(all, difference{script, b.command, reason, b.output})
			continue
		}
		for _, line := range b.text {
			if name, ok := strings.CutPrefix(line, "@ "); ok {
				script, reason = name, ""
			} else if line != "" {
				reason = line // The last line of a text is enough to know that there is one.
			}
		}
	}
	return all, nil
}
