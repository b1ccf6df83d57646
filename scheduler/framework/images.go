package framework

import corev1 "monoplane.dev/api/core/v1"

// nodeImages are the images on a node: their sizes by each of their names. It is immutable, and shared by the states
// of a node between which they stay the same.
type nodeImages struct {
	sizes map[string]int64
	// reported is what the node said, in its order, to know it again.
	reported []namedImage
}

type namedImage struct {
	name string
	size int64
}

// newNodeImages returns was when it says the same: nodes report their images often, and change them seldom.
func newNodeImages(images []*corev1.ContainerImage, was *nodeImages) *nodeImages {
	if was.says(images) {
		return was
	}
	if len(images) == 0 {
		return nil
	}
	n := &nodeImages{sizes: map[string]int64{}}
	for _, image := range images {
		for _, name := range image.GetNames() {
			n.reported = append(n.reported, namedImage{name, image.GetSizeBytes()})
			if _, ok := n.sizes[name]; !ok {
				n.sizes[name] = image.GetSizeBytes()
			}
		}
	}
	return n
}

func (n *nodeImages) says(images []*corev1.ContainerImage) bool {
	if n == nil {
		return len(images) == 0
	}
	rest := n.reported
	for _, image := range images {
		for _, name := range image.GetNames() {
			if len(rest) == 0 || rest[0] != (namedImage{name, image.GetSizeBytes()}) {
				return false
			}
			rest = rest[1:]
		}
	}
	return len(rest) == 0
}

// ImageSize returns the size of an image on the node, ok is false when the node does not have it.
func (n *NodeInfo) ImageSize(name string) (size int64, ok bool) {
	if n.images == nil {
		return 0, false
	}
	size, ok = n.images.sizes[name]
	return size, ok
}

// imageIndex counts the nodes of a snapshot that have an image, by each of its names. Invariant: no count is 0.
type imageIndex map[string]int

// Added counts the images of a node.
func (x imageIndex) Added(n *NodeInfo) { x.move(nil, n.images) }

// Changed counts the images that came and went.
func (x imageIndex) Changed(was, now *NodeInfo, _, _ []*PodInfo) { x.move(was.images, now.images) }

// Removed takes the images of a node out.
func (x imageIndex) Removed(n *NodeInfo) { x.move(n.images, nil) }

// move takes the images that a node has now for those that it had; nil for none.
func (x imageIndex) move(was, now *nodeImages) {
	if was == now {
		return // as after nearly every change
	}
	if now != nil {
		for name := range now.sizes {
			x[name]++
		}
	}
	if was == nil {
		return
	}
	for name := range was.sizes {
		if x[name]--; x[name] == 0 {
			delete(x, name)
		}
	}
}

// NodesWithImage returns how many nodes have an image.
func (s *Snapshot) NodesWithImage(name string) int { return s.images[name] }

// HasImages says whether any node has any image.
func (s *Snapshot) HasImages() bool { return len(s.images) > 0 }
