package demo

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clusterScenes has one scene for each thing there is to see of a cluster. base is a
// scene of a room that is full.
func clusterScenes(base func(func(*scene)) *scene) map[string]*scene {
	cluster := func(change func(*scene)) *scene {
		s := base(func(s *scene) {
			s.Open = true
			for i, n := range []int{41, 48, 42} {
				s.Nodes = append(s.Nodes, nodeScene{Name: fmt.Sprintf("n%d", i+1), Stands: up,
					For: time.Minute, LetIn: n})
			}
			s.Nodes[0].Leads, s.Nodes[1].Hosts = true, true
		})
		change(s)
		return s
	}
	// falls makes a node as it is after a kill.
	falls := func(s *scene, i int, k kill) {
		s.Nodes[i] = nodeScene{Name: s.Nodes[i].Name, For: k.age, LetIn: s.Nodes[i].LetIn}
		k.who = s.Nodes[i].Name
		s.Seen.Kills = append(s.Seen.Kills, k)
	}
	return map[string]*scene{
		"cluster wakes up": cluster(func(s *scene) {
			s.State, s.Shop, s.Since = state{AtOnce: 20}, report{Let: make([]int, 10)}, 3*time.Second
			s.Seen, s.Open, s.Up = finding{Expected: -1}, false, false
			for i := range s.Nodes {
				s.Nodes[i] = nodeScene{Name: s.Nodes[i].Name, Stands: starting, For: 3 * time.Second}
			}
			s.Nodes[2].Stands = up
		}),
		"cluster": cluster(func(s *scene) { s.Nodes[1].Leads, s.Nodes[0].Leads = true, false }),
		"cluster host killed": cluster(func(s *scene) {
			falls(s, 1, kill{waiting: 97, again: 12, age: 2 * time.Second})
			s.Up = false
		}),
		"cluster elects": cluster(func(s *scene) {
			falls(s, 0, kill{waiting: 97, again: 97, age: 5 * time.Second})
			s.Seen.Idle.Now = 5 * time.Second
		}),
		"cluster listens": cluster(func(s *scene) {
			falls(s, 2, kill{waiting: 97, age: 4 * time.Second})
			s.Seen.Idle.Now = 4 * time.Second
		}),
		"cluster of two": cluster(func(s *scene) { falls(s, 2, kill{age: 40 * time.Second}) }),
		"cluster catches up": cluster(func(s *scene) {
			s.Nodes[2] = nodeScene{Name: "n3", Stands: starting, For: time.Second, LetIn: 42}
		}),
		"cluster of one": cluster(func(s *scene) {
			falls(s, 0, kill{waiting: 97, again: 97, age: 9 * time.Second})
			falls(s, 1, kill{waiting: 97, lost: 3, again: 80, age: 4 * time.Second})
			s.Up, s.Note = false, "nobody hosts the room just now"
		}),
		"cluster of one and a half": cluster(func(s *scene) {
			falls(s, 0, kill{waiting: 97, again: 97, age: 9 * time.Second})
			s.Nodes[1] = nodeScene{Name: "n2", Stands: starting, For: 2 * time.Second, LetIn: 48}
			s.Up = false
		}),
		"cluster of none": cluster(func(s *scene) {
			for i := range s.Nodes {
				falls(s, i, kill{waiting: 97, age: time.Second})
			}
			s.Up, s.People = false, []guest{{Position: 3, Expected: 2 * time.Second}}
		}),
		"cluster of halves": cluster(func(s *scene) {
			for i := range s.Nodes {
				falls(s, i, kill{waiting: 97, age: 9 * time.Second})
			}
			s.Up, s.Nodes[0].Stands = false, starting
		}),
	}
}

// TestClusterLines: a log says what happened, and how all nodes and the room fare.
func TestClusterLines(t *testing.T) {
	all := scenes()
	begun := time.Now()
	s := all["cluster of one"]
	s.News = []news{{begun.Add(63 * time.Second), "n1 is killed"}}
	const want = " 63 s  n1 is killed\n" +
		" 67 s  n1 down, n2 down, n3 up  inside 18 of 20  waiting 97  let in 112 a minute  " +
		"most inside 20 of 20  over 0  overtaken 0  lost 0  kills 2\n"
	if diff := cmp.Diff(want, s.line(begun)); diff != "" {
		t.Error(diff)
	}
	const cold = "  3 s  n1 starting, n2 starting, n3 up  " +
		"They wake up and elect a leader, which takes some 4 to 12 s …\n"
	if diff := cmp.Diff(cold, all["cluster wakes up"].line(begun)); diff != "" {
		t.Error(diff)
	}
}
