{{/* What can't be rendered, each with the value's name, what was found and the cure. All findings at once. */}}

{{- define "gdp.check" -}}
{{- $findings := concat
  (include "gdp.check.placement" . | fromJsonArray)
  (include "gdp.check.config" . | fromJsonArray)
  (include "gdp.check.pods" . | fromJsonArray)
  (include "gdp.check.supervisor" . | fromJsonArray)
  (include "gdp.check.resources" . | fromJsonArray)
  (include "gdp.check.notOffered" . | fromJsonArray) -}}
{{- with $findings -}}
{{- fail (printf "\n%s" (join "\n" .)) -}}
{{- end -}}
{{- end -}}

{{- define "gdp.check.placement" -}}
{{- $found := list -}}
{{- if .Values.namespace -}}
{{- $found = append $found (printf "namespace: found %v; the release's namespace counts: use helm's --namespace (with --create-namespace), or namespaceOverride" .Values.namespace) -}}
{{- end -}}
{{- if and (eq (include "gdp.namespace" .) "default") (not .Values.allowDefaultNamespace) -}}
{{- $found = append $found "the namespace is default: install with --namespace (and --create-namespace), or set allowDefaultNamespace to true" -}}
{{- end -}}
{{- if regexMatch "nvidia.*k8s-device-plugin" .Values.image.repository -}}
{{- $found = append $found (printf "image.repository: found %s, which is NVIDIA's plugin; set it to where this plugin's image is, and remove image.tag" .Values.image.repository) -}}
{{- else if contains "@" .Values.image.repository -}}
{{- $found = append $found (printf "image.repository: found %s; the digest belongs into image.tag, as TAG@sha256:..." .Values.image.repository) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "gdp.check.config" -}}
{{- $found := list -}}
{{- $config := .Values.config -}}
{{- $map := $config.map | default dict -}}
{{- $names := keys $map | sortAlpha -}}
{{- if and $config.name $config.map -}}
{{- $found = append $found "config: found both name and map, expected one: name for a ConfigMap that exists, map for one that this chart makes" -}}
{{- else if and $config.name (not $config.default) -}}
{{- $found = append $found (printf "config.default: found nothing, expected the key of ConfigMap %s that is the plugin's file; the chart can't look into a ConfigMap that it doesn't make" $config.name) -}}
{{- else if and $config.default (not $config.name) (not (hasKey $map $config.default)) -}}
{{- $found = append $found (printf "config.default: found %s, expected a key of config.map: %s" $config.default (join ", " $names | default "there is none")) -}}
{{- else if and (gt (len $names) 1) (not (include "gdp.config.key" .)) (not (has "empty" $config.fallbackStrategies)) -}}
{{- $found = append $found (printf "config.default: found nothing, expected which key of config.map is the plugin's file: %s" (join ", " $names)) -}}
{{- else if not $config.name -}}
{{- $key := include "gdp.config.key" . -}}
{{- range $names -}}
{{- if ne . $key -}}
{{- $found = append $found (printf "config.map.%s: a node could only get it by its label nvidia.com/device-plugin.config, which is not offered yet; remove the key, or install the chart once for each node group, with a nodeSelector and one file" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $text := $config.map -}}
{{- $file := fromYaml $text -}}
{{- with $file.Error -}}
{{- $found = append $found (printf "config.map.%s: is no YAML mapping: %s" $name .) -}}
{{- end -}}
{{- $flags := kindIs "map" $file.flags | ternary $file.flags dict -}}
{{- range $path, $section := dict "flags" $file.flags "flags.plugin" $flags.plugin "sharing" $file.sharing -}}
{{- if not (or (empty $section) (kindIs "map" $section)) -}}
{{- $found = append $found (printf "config.map.%s: %s: found %s, expected a mapping" $name $path (toJson $section)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* What the API server would take, or refuse without a word about values, and no node can do with. */}}
{{- define "gdp.check.pods" -}}
{{- $found := list -}}
{{- $surge := ((.Values.updateStrategy | default dict).rollingUpdate | default dict).maxSurge | default 0 | toString -}}
{{- if not (has $surge (list "0" "0%")) -}}
{{- $found = append $found (printf "updateStrategy.rollingUpdate.maxSurge: found %s, expected 0: two plugins on one node take the resource from each other" $surge) -}}
{{- end -}}
{{- $unavailable := get ((.Values.updateStrategy | default dict).rollingUpdate | default dict) "maxUnavailable" | toString -}}
{{- if has $unavailable (list "0" "0%") -}}
{{- $found = append $found (printf "updateStrategy.rollingUpdate.maxUnavailable: found %s, expected more: without a surge no pod could be replaced" $unavailable) -}}
{{- end -}}
{{- $identity := include "gdp.identity" . | fromYaml -}}
{{- range $label, $value := .Values.podLabels -}}
{{- if hasKey $identity $label -}}
{{- $found = append $found (printf "podLabels.%s: found %s, but the plugin's pods are known by this label: remove it; nameOverride or selectorLabelsOverride set it" $label $value) -}}
{{- end -}}
{{- end -}}
{{- $contexts := dict "securityContext" .Values.securityContext "mps.securityContext" .Values.mps.securityContext -}}
{{- range $value, $context := include "gdp.mig" . | empty | ternary dict $contexts -}}
{{- $added := ($context.capabilities | default dict).add | default list -}}
{{- if and $context (not $context.privileged) (not (or (has "SYS_ADMIN" $added) (has "CAP_SYS_ADMIN" $added) (has "ALL" $added))) -}}
{{- $found = append $found (printf "%s: found %s without capability SYS_ADMIN, but NVIDIA's runtime starts no container without it that is to list MIG instances: add it, or set privileges.mig to false (CDI)" $value (toJson $context)) -}}
{{- end -}}
{{- end -}}
{{- $supervisor := include "gdp.mps.identity" . | fromYaml -}}
{{- $apart := not (include "gdp.mps" .) -}}
{{- range $label, $value := include "gdp.selector" . | fromYaml -}}
{{- if not (and (hasKey $supervisor $label) (eq $value (get $supervisor $label))) -}}
{{- $apart = true -}}
{{- end -}}
{{- end -}}
{{- if not $apart -}}
{{- $found = append $found (printf "selectorLabelsOverride: found %s, which the MPS supervisor's pods have as well: add a label that only the plugin's are to have" (toJson .Values.selectorLabelsOverride)) -}}
{{- end -}}
{{- $handedOn := dict "CONFIG_FILE" "config" "NVIDIA_CTK_PATH" "cdi.nvidiaHookPath" "MPS_SHM_SIZE" "mps.shmSize" -}}
{{- range include "gdp.plugin.values" . | fromJsonArray -}}
{{- $_ := set $handedOn (index . 0) (index . 2) -}}
{{- end -}}
{{- $seen := dict -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $handedOn .name -}}
{{- $found = append $found (printf "extraEnv: found %s, which is a value of its own that rights and mounts follow: set %s" .name (get $handedOn .name)) -}}
{{- else if hasKey $seen .name -}}
{{- $found = append $found (printf "extraEnv: found %s twice, expected each variable once" .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A file without MPS would take the supervisor away at once, under the pods that hold shares. Offline there is none to see. */}}
{{- define "gdp.check.supervisor" -}}
{{- $found := list -}}
{{- if and .Values.devicePlugin.enabled (kindIs "invalid" .Values.mps.enabled) (not (include "gdp.mps" .)) -}}
{{- $name := include "gdp.mps.fullname" . -}}
{{- $labels := ((lookup "apps/v1" "DaemonSet" (include "gdp.namespace" .) $name).metadata | default dict).labels | default dict -}}
{{- if and (eq "mps" (get $labels "app.kubernetes.io/component")) (eq .Release.Name (get $labels "app.kubernetes.io/instance")) -}}
{{- $found = append $found (printf "mps.enabled: found nothing, and the file asks for no MPS, but DaemonSet %s runs: with its end the work of every pod on an MPS share would end; set it to true until `gpu-device-plugin status` shows no MPS control daemon on any node, then to false" $name) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A quantity as a number: 50m is 0.05, 1Ki 1024. The schema has seen to it that it is one. */}}
{{- define "gdp.quantity" -}}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[a-zA-Z]+$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit | default 1) -}}
{{- end -}}

{{/* Findings, as JSON. Takes the path of the value, the value, the least that it may be, and why. */}}
{{- define "gdp.check.least" -}}
{{- if and (index . 1 | kindIs "invalid" | not) (lt (include "gdp.quantity" (index . 1) | float64) (include "gdp.quantity" (index . 2) | float64)) -}}
{{- $shown := kindIs "float64" (index . 1) | ternary (toJson (index . 1)) (toString (index . 1)) -}}
{{- list (printf "%s: found %s, expected at least %s: %s" (index . 0) $shown (index . 2) (index . 3)) | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- define "gdp.check.resources" -}}
{{- $limits := (.Values.resources | default dict).limits | default dict -}}
{{- concat
  (include "gdp.check.least" (list "resources.limits.memory" $limits.memory "80Mi" "the plugin is a Python process of about 50 MiB and would be killed at once; limits measured for NVIDIA's plugin don't fit, remove the key for our own (128Mi)") | fromJsonArray)
  (include "gdp.check.least" (list "resources.limits.cpu" $limits.cpu "50m" "a probe is a Python process that takes 0.1 s of CPU, and with less two at a time do not end in their 5 s; remove the key: a throttled plugin makes pods wait") | fromJsonArray)
  (include "gdp.check.least" (list "mps.shmSize" .Values.mps.shmSize "16Mi" "no daemon has room in less") | fromJsonArray)
| toJson -}}
{{- end -}}
