package algorithm

import "github.com/agl-go/agl/tinker"

// Role is an agent in rollouts that is trained with a model of its own. Its calls are those that ask for its model.
type Role struct {
	// Name names it in versions, reports and the run's identity: letters, digits, _ and -.
	Name string
	// Model describes the model to create.
	Model tinker.CreateModelParams
	// InitialWeights is that of TrainingConfig.
	InitialWeights string
	// Publisher swaps the model that the role's agents call.
	Publisher Publisher
	// ModelName is the model that they ask for.
	ModelName string
	// Reward is the dimension of the rewards that the role learns from. A rollout whose final reward lacks it is masked for the
	// role. Empty means the primary dimension, whole: roles that share it work for the same goal.
	Reward string
	// Schedule is the role's learning rate; a zero Peak means that of the algorithm.
	Schedule Schedule
}

// Version returns the version of the role's weights that were published with resources. No other role has the same, so the
// version that the proxy records with a call tells which role made the call.
func (r Role) Version(resourcesID string) string { return resourcesID + "." + r.Name }

// TrainedRole is a role of a [Session].
type TrainedRole struct {
	Role
	Client tinker.TrainingClient
	// Calls tells the calls of the role from others.
	Calls *PolicyCalls
}
